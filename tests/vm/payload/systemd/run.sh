. /payload/job.sh
scope() { systemd-run --user --scope --quiet -p Delegate=yes -- "$@"; }
/payload/facts >/out/login.facts
scope /payload/facts >/out/scope.facts
job login
job scope systemd-run --user --scope --quiet -p Delegate=yes --
gotests user
