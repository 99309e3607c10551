. /payload/job.sh
/payload/facts >/out/root.facts
options='--allow-degraded out_storage,launcher_identity'
job privileged
sh /payload/refusals.sh
gotests root
