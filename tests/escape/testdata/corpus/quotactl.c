/* family: filesystem
   attempts: change quotas, from machine code
   holds: EPERM */
#include "call.h"
long attempt(void) { return call(179,0,0,0,0); }
