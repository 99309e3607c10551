package reason

const (
	// JournalCorrupt: an attempt's journal is not one, or holds records that no crash explains; the attempt is quarantined and other attempts run.
	JournalCorrupt ID = "journal_corrupt"
	// JournalWrite: a step of the attempt could not be recorded durably, so the step was not taken.
	JournalWrite ID = "journal_write"
	// JournalOrder: nsbox was about to record a step that cannot follow the ones before it, which is a fault of nsbox.
	JournalOrder ID = "journal_order"
)
