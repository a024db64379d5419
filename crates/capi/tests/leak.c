/* A handle that is never freed: what the sanitizer of leaks must find. */
#include <steadycast.h>

int main(void)
{
    SteadycastBounds bounds = STEADYCAST_BOUNDS(100000, 10000000);
    return !steadycast_new(STEADYCAST_ABI, "tfrc", "{}", &bounds, 0, 0);
}
