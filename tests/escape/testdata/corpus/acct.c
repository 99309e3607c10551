/* family: log
   attempts: account every process of the machine, from machine code
   holds: EPERM */
#include "call.h"
long attempt(void) { return call(163,0); }
