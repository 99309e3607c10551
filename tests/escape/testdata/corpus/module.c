/* family: memory
   attempts: load a kernel module, from machine code
   holds: EPERM */
#include "call.h"
long attempt(void) { return call(175,0,0,0); }
