/* family: log
   attempts: read the kernel log, from machine code
   holds: EPERM */
#include "call.h"
long attempt(void) { return call(103,3,0,0); }
