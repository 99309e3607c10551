/* family: mounts
   attempts: move a mount, from machine code
   holds: EPERM */
#include "call.h"
long attempt(void) { return call(429,-1,0,-1,0,0); }
