/* family: memory
   attempts: change the machine's swap, from machine code
   holds: EPERM */
#include "call.h"
long attempt(void) { return call(168,0); }
