/* family: terminals
   attempts: hang up a terminal, from machine code
   holds: EPERM */
#include "call.h"
long attempt(void) { return call(153); }
