/* family: memory
   attempts: count what other processes do, from machine code
   holds: EPERM EFAULT */
#include "call.h"
long attempt(void) { return call(298,0,0,-1,-1); }
