/* family: memory
   attempts: load another kernel, from machine code
   holds: EPERM */
#include "call.h"
long attempt(void) { return call(246,0,0,0,0); }
