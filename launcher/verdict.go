package launcher

import "time"

// deliveryOf is what delivery comes to for an artifact and a clean-up, "" where
// the artifact is to be published: that succeeds (DELIVERED) or not (BLOCKED).
// An artifact that was neither accepted nor found to be nothing is held back as
// one whose clean-up is not proven is: the source may hold the only copy.
func deliveryOf(artifact, cleanup string) string {
	if cleanup != CleanupVerified {
		return DeliveryBlocked
	}
	switch artifact {
	case ArtifactAccepted:
		return ""
	case ArtifactEmpty, ArtifactRejected, ArtifactNotExported, ArtifactNotExamined:
		return DeliveryNoArtifact
	}
	return DeliveryBlocked
}

// settles says whether the export came to a verdict that lets the source be
// destroyed: a verified copy exists, or none is needed.
func settles(artifact string) bool {
	return deliveryOf(artifact, CleanupVerified) != DeliveryBlocked
}

// endOfBudget is the end of a part of the attempt that may take budget from now on,
// and never more than what is left of the attempt as a whole.
func endOfBudget(budget time.Duration, attempt time.Time) time.Time {
	end := time.Now().Add(budget)
	if end.After(attempt) {
		return attempt
	}
	return end
}
