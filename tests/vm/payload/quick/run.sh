. /payload/job.sh
/payload/facts >/out/user.facts
job without-helper
gotests user
