/** Reports the progress of a request. */

/** Milliseconds between two reports. */
export const reportMs = 100;

/** @typedef {Pick<import("./requests.mjs").Call, "emit">} Listener */

/** @param {Listener} call */
export function bytesTo({ emit }) {
  return seldom((doneBytes) => void emit({ progress: { doneBytes } }));
}

/** @param {Listener} call */
export function entriesTo({ emit }) {
  return seldom((doneEntries) => void emit({ progress: { doneEntries } }));
}

/** @param {(done: number) => void} report */
function seldom(report) {
  let reportedMs = 0;
  return (/** @type {number} */ done) => {
    const nowMs = performance.now();
    if (nowMs - reportedMs < reportMs) return;
    reportedMs = nowMs;
    report(done);
  };
}
