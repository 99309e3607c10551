/* family: mounts
   attempts: change the root, from machine code
   holds: EPERM */
#include "call.h"
long attempt(void) { return call(155,0,0); }
