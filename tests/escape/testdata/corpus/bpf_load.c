/* family: memory
   attempts: load a program into the kernel, from machine code
   holds: EPERM */
#include "call.h"
long attempt(void) { return call(321,5,0,0); }
