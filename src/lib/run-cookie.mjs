/** The id that every process of a run carries in its environment, so that those that leave its session are found. */

/** The variable. */
export const runIdVariable = "SVC_RUN_ID";

const cookiePattern = new RegExp(`(?:^|\\0)${runIdVariable}=([^\\0]*)\\0`);

/**
 * Whether an environment carries the cookie of a run.
 * @param {Buffer} environ as `/proc/<pid>/environ` gives it
 * @param {string} runId
 */
export function carriesCookie(environ, runId) {
  const cookie = `${runIdVariable}=${runId}\0`;
  return environ.subarray(0, cookie.length).equals(Buffer.from(cookie)) || environ.includes(`\0${cookie}`);
}

/**
 * The id of the run whose cookie an environment carries.
 * @param {Buffer} environ as `/proc/<pid>/environ` gives it
 * @returns {string | undefined}
 */
export function carriedRunId(environ) {
  return cookiePattern.exec(environ.toString("latin1"))?.[1];
}
