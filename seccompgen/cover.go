package seccompgen

// cube is the set of 32-bit words w with w & mask == value.
type cube struct{ mask, value uint32 }

// outside returns disjoint cubes that together hold exactly the words w for which
// w & mask is not among in: a walk down the binary tree of the mask's bits that
// stops at every branch without a wanted value.
func outside(mask uint32, in []Value) []cube {
	words := make([]uint32, len(in))
	for i, v := range in {
		words[i] = v.N
	}
	var out []cube
	var walk func(bit int, c cube, words []uint32)
	walk = func(bit int, c cube, words []uint32) {
		if len(words) == 0 {
			out = append(out, c)
			return
		}
		for bit >= 0 && mask&(1<<bit) == 0 {
			bit--
		}
		if bit < 0 {
			return
		}
		for _, side := range []uint32{0, 1 << bit} {
			var below []uint32
			for _, w := range words {
				if w&(1<<bit) == side {
					below = append(below, w)
				}
			}
			walk(bit-1, cube{c.mask | 1<<bit, c.value | side}, below)
		}
	}
	walk(31, cube{}, words)
	return out
}
