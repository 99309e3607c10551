/* family: namespaces
   attempts: reach another namespace, from machine code
   holds: EPERM */
#include "call.h"
long attempt(void) { return call(308,-1,0); }
