/** How many test files run at once: more than the processors while these have nothing to do, as most tests wait most of the time. */
import { availableParallelism, cpus } from "node:os";

const lookMs = 2_000;
/** Of the processors' time since the last look: with more to spare another file begins, with less one fewer goes on. */
const spareShare = 0.12;
const tightShare = 0.02;
/** By processor, so that tests that burn a processor at the same time still get on. */
const mostByProcessor = 4;

/**
 * Runs `work` again and again side by side, until it says that there is no more: one at once more than there are processors, up
 * to four for each of them where they idle.
 */
export async function fillProcessors(work: () => Promise<boolean>): Promise<void> {
  const least = availableParallelism() + 1;
  const most = availableParallelism() * mostByProcessor;
  const running = new Set<Promise<void>>();
  let isTight = false;
  let isOver = false;
  const add = (): void => {
    const one = (async () => {
      do isOver = !(await work()) || isOver;
      while (!isOver && !(isTight && running.size > least));
    })().finally(() => running.delete(one));
    running.add(one);
  };
  let before = processorTimes();
  const looking = setInterval(() => {
    const now = processorTimes();
    const spare = (now.idle - before.idle) / (now.all - before.all);
    before = now;
    isTight = spare < tightShare;
    if (spare > spareShare && running.size < most && !isOver) add();
  }, lookMs);
  for (let at = 0; at < least; at += 1) add();
  try {
    while (running.size > 0) await Promise.race(running);
  } finally {
    clearInterval(looking);
  }
}

function processorTimes(): { idle: number; all: number } {
  const times = cpus().map((cpu) => cpu.times);
  const idle = times.reduce((sum, each) => sum + each.idle, 0);
  const all = times.reduce(
    (sum, { user, nice, sys, idle: rest, irq }) => sum + user + nice + sys + rest + irq,
    0,
  );
  return { idle, all };
}
