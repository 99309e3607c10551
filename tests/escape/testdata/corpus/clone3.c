/* family: namespaces
   attempts: flags where no filter can look, from machine code
   holds: ENOSYS */
#include "call.h"
long attempt(void) { return call(435,0,0); }
