/* family: signals
   attempts: become uid 0, from machine code
   holds: EPERM */
#include "call.h"
long attempt(void) { return call(105,0); }
