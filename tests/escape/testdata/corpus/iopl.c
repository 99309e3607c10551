/* family: descriptors
   attempts: reach hardware ports, from machine code
   holds: EPERM */
#include "call.h"
long attempt(void) { return call(172,3); }
