package reason

// The box's root: what program runs and which host files it needs.
const (
	// ProgramNotFound: no file of that name exists where nsbox looks for programs (exit code 127).
	ProgramNotFound ID = "program_not_found"
	// ProgramNotExecutable: the file exists but the kernel could not run it for the box's user (exit code 126).
	ProgramNotExecutable ID = "program_not_executable"
	// ProgramWrongArch: the program is built for another processor or word size than this host's.
	ProgramWrongArch ID = "program_wrong_arch"
	// LoaderMissing: the ELF loader that the program names in PT_INTERP is not on this host.
	LoaderMissing ID = "loader_missing"
	// LibraryMissing: a shared library that the program needs to start is not on this host.
	LibraryMissing ID = "library_missing"
	// InterpreterMissing: the interpreter on the script's "#!" line cannot be found or is no ELF program.
	InterpreterMissing ID = "interpreter_missing"
	// PythonStdlibMissing: the interpreter was found but its standard library was not.
	PythonStdlibMissing ID = "python_stdlib_missing"
	// RootfsDuplicateTarget: two different entries of the box's root claim one path.
	RootfsDuplicateTarget ID = "rootfs_duplicate_target"
	// RootfsBadParent: an entry of the box's root would lie below something that is not a plain directory.
	RootfsBadParent ID = "rootfs_bad_parent"
	// RootfsBadOptions: a size, inode count or user id for the box's root is missing or out of range.
	RootfsBadOptions ID = "rootfs_bad_options"
	// RootfsSourceUnreadable: a host file for the box's root cannot be read by the box's user.
	RootfsSourceUnreadable ID = "rootfs_source_unreadable"
	// RootfsSourceChanged: a host file for the box's root is no longer the one that was examined.
	RootfsSourceChanged ID = "rootfs_source_changed"
	// PreparedNotUsable: prepared packages do not fit the program or its interpreter.
	PreparedNotUsable ID = "prepared_not_usable"
	// RootfsCacheNotPrivate: the closure cache lies in a directory that others could write to.
	RootfsCacheNotPrivate ID = "rootfs_cache_not_private"
)

// Inputs: what --in names and what becomes of it.
const (
	// InputMissing: a file or directory named by --in, or an entry of it, does not exist or vanished.
	InputMissing ID = "input_missing"
	// InputUnreadable: the operator may not read an input.
	InputUnreadable ID = "input_unreadable"
	// InputSymlink: a directory given to --in holds a symbolic link.
	InputSymlink ID = "input_symlink"
	// InputSpecial: an input is neither a regular file nor a directory.
	InputSpecial ID = "input_special"
	// InputBadName: a name that would appear below /in is empty, too long, not UTF-8 or holds control bytes or a slash.
	InputBadName ID = "input_bad_name"
	// InputCollision: two inputs would appear under one name below /in.
	InputCollision ID = "input_collision"
	// InputTooLarge: the inputs together exceed the policy's limit in bytes.
	InputTooLarge ID = "input_too_large"
	// InputTooMany: the inputs hold more entries, or lie deeper, than nsbox stages.
	InputTooMany ID = "input_too_many"
	// InputChanged: an input was modified while it was being copied.
	InputChanged ID = "input_changed"
	// InputStagingFailed: the launcher could not write its private copy of the inputs.
	InputStagingFailed ID = "input_staging_failed"
	// CertificatesMissing means that the policy lists destinations and the host has no bundle of CA certificates to give the box.
	CertificatesMissing ID = "certificates_missing"
)
