"""Whether the machine had other work during a measurement."""
import os
import resource


class Quiet:
    """Processor time since it was made: of programs that this one started, and of everything else."""

    def __init__(self):
        self.busy, self.stolen, self.all = self.now()
        self.own = self.own_ticks()

    @staticmethod
    def now():
        with open("/proc/stat", encoding="utf-8") as file:
            user, nice, system, idle, wait, irq, soft, steal = (int(v) for v in file.readline().split()[1:9])
        return user + nice + system + irq + soft, steal, user + nice + system + irq + soft + steal + idle + wait

    @staticmethod
    def own_ticks():
        ticks = 0.0
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
            usage = resource.getrusage(who)
            ticks += usage.ru_utime + usage.ru_stime
        return ticks * os.sysconf("SC_CLK_TCK")

    def share_of_others(self):
        """Of all processors' time, what others took, a hypervisor's neighbors included."""
        busy, stolen, every = self.now()
        others = max(0.0, (busy - self.busy) - (self.own_ticks() - self.own)) + (stolen - self.stolen)
        return others / max(1, every - self.all)
