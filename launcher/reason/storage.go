package reason

// What can be wrong with a provisioned /out, and with provisioning.
const (
	// OutNotProvisioned means that the policy names a provisioned /out and no slot belongs to this launcher's ids.
	OutNotProvisioned ID = "out_not_provisioned"
	// OutSlotDiffers means that a provisioned slot of /out does not have the size, the inodes, the flags or the owner that the policy asks for.
	OutSlotDiffers ID = "out_slot_differs"
	// OutLifetimeUnknown means that nothing shows that a slot of /out outlives nsbox: root's record of it is missing, of another boot, or of another device.
	OutLifetimeUnknown ID = "out_lifetime_unknown"
	// OutSlotsTaken means that every provisioned slot of /out is in use or keeps what a dead launcher left in it.
	OutSlotsTaken ID = "out_slots_taken"
	// OutSlotForeign means that the slot named to nsbox reconcile is none of this launcher's.
	OutSlotForeign ID = "out_slot_foreign"
	// OutWipeFailed means that a slot of /out could not be emptied; it is kept as it is and not given out again.
	OutWipeFailed ID = "out_wipe_failed"
	// ProvisionInvalid means that an argument of nsbox provision cannot be used.
	ProvisionInvalid ID = "provision_invalid"
	// ProvisionNotRoot means that applying and undoing change accounts and mounts, which only root may.
	ProvisionNotRoot ID = "provision_not_root"
	// ProvisionForeign means that something nsbox provision would make is there already and is not its own.
	ProvisionForeign ID = "provision_foreign"
	// ProvisionStep means that a step of nsbox provision failed, or that the host does not show its effect.
	ProvisionStep ID = "provision_step"
	// ProvisionInUse means that what is to be undone is in use, or keeps what was not reconciled yet.
	ProvisionInUse ID = "provision_in_use"
	// ProvisionIncomplete means that nsbox provision --check found something missing or changed.
	ProvisionIncomplete ID = "provision_incomplete"
)
