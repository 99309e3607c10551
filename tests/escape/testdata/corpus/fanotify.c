/* family: filesystem
   attempts: watch a whole mount, from machine code
   holds: EPERM */
#include "call.h"
long attempt(void) { return call(300,0,0); }
