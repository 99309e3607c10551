package reason

// The store of roots and prepared packages, and what fills it.
const (
	// StoreUnusable: the store's directory cannot be used, or could be changed by somebody else.
	StoreUnusable ID = "store_unusable"
	// StoreMissing: what was named by digest or name is not in the store.
	StoreMissing ID = "store_missing"
	// StoreDamaged: something in the store is no longer what was put there.
	StoreDamaged ID = "store_damaged"
	// StoreBusy: an entry of the store is in use by a run.
	StoreBusy ID = "store_busy"
	// StoreBadTree: a directory cannot be given a content digest.
	StoreBadTree ID = "store_bad_tree"
	// RootfsDigest: a root or prepared packages do not have the digest that the policy names.
	RootfsDigest ID = "rootfs_digest"
	// ImageNotUnpacked: the image is not in the store yet, and this command makes nothing.
	ImageNotUnpacked ID = "image_not_unpacked"
	// ImageRefused: an OCI image is broken, hostile or beyond the bounds, and nothing of it was kept.
	ImageRefused ID = "image_refused"
	// HelperFailed: a box of nsbox's own, which reads or removes what others made, did not do its work.
	HelperFailed ID = "helper_failed"
	// LockInvalid: the lock file is not a list of exact versions with one sha256 each.
	LockInvalid ID = "lock_invalid"
	// WheelRefused: a wheel is missing, additional, malformed or has another hash than the lock file says; it was put in quarantine.
	WheelRefused ID = "wheel_refused"
	// PrepFailed: the installer in its box failed; its log is in quarantine.
	PrepFailed ID = "prep_failed"
	// PrepNoInstaller: the root has no pip for its interpreter.
	PrepNoInstaller ID = "prep_no_installer"
)
