/* family: signals
   attempts: drop the groups that deny, from machine code
   holds: EPERM */
#include "call.h"
long attempt(void) { return call(116,0,0); }
