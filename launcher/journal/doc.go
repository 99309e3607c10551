// Package journal keeps the durable story of one attempt, so that after a kill
// at any instant the next command knows what may exist and what is proven gone.
//
// # File
//
// A journal is one append-only file: a 16-byte header (magic, version, checksum)
// and frames of {payload length, CRC-32C of the payload, payload}, the numbers
// as little-endian 32-bit words, the payload one JSON [Record] with a sequence
// number from 1 without gaps. An append is one write on an O_APPEND descriptor;
// if it comes up short, the file is cut back to the last whole record, so that a
// full disk never leaves half a record in the middle. A crash can leave one at
// the end: [Read] counts such a torn tail and [Repair] moves it aside. A record
// whose frame is whole but whose content cannot be right is ErrCorrupt: that is
// no crash, and nothing is cut.
//
// # Durability
//
// [Create] and [Journal.Append] only write. [Journal.Sync] makes everything
// appended before it durable, the directory entry included the first time; calls
// that overlap share one fdatasync. So the launcher may append several intents,
// start Sync on another goroutine, go on with the set-up, and join it before the
// first effect. After a failed flush the kernel may have dropped the pages and
// call the next flush a success: the journal is then broken for good and every
// later call says so. Room for a usual attempt is reserved at creation where the
// file system can, so that the end of an attempt can be recorded on a disk that
// filled up in the middle.
//
// # Order
//
// Every effect stands between an intent, durable before it, and a record of its
// completion. Which event may follow which is one table, order.go; [Next] applies
// one event, [Replay] folds a journal, Append refuses what the table refuses. An
// intent without completion in the state is what may exist ([State.Open]).
// Exactly one terminal event is recorded, by [Journal.Terminal]; whoever comes
// second is told so, and told only once the first is durable. No intent to create
// something can follow it, so a cancellation also stops the set-up.
//
// One process writes a journal at a time; the launcher's lock sees to that.
package journal
