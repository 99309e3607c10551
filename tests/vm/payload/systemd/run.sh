. /payload/job.sh
scope() { systemd-run --user --scope --quiet -p Delegate=yes -- "$@"; }
/payload/facts >/out/login.facts
scope /payload/facts >/out/scope.facts
job login
job scope systemd-run --user --scope --quiet -p Delegate=yes --
gotests user
# What makes groups itself needs one of its own.
scope sh -c '. /payload/job.sh; gotests scope'
