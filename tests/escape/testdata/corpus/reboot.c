/* family: time
   attempts: stop the machine, from machine code
   holds: EPERM */
#include "call.h"
long attempt(void) { return call(169,0xfee1dead,672274793,0); }
