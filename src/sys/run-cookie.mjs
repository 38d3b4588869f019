/** The run ID in the environment of every process of a run, by which processes are found that leave its session. */

/** The environment variable. */
export const runIdVariable = "SVC_RUN_ID";

const cookiePattern = new RegExp(`(?:^|\\0)${runIdVariable}=([^\\0]*)\\0`);

/**
 * Whether an environment contains the cookie of a run.
 * @param {Buffer} environ content of `/proc/<pid>/environ`
 * @param {string} runId
 */
export function carriesCookie(environ, runId) {
  const cookie = `${runIdVariable}=${runId}\0`;
  return environ.subarray(0, cookie.length).equals(Buffer.from(cookie)) || environ.includes(`\0${cookie}`);
}

/**
 * Returns the run ID from the cookie in an environment.
 * @param {Buffer} environ content of `/proc/<pid>/environ`
 * @returns {string | undefined}
 */
export function carriedRunId(environ) {
  return cookiePattern.exec(environ.toString("latin1"))?.[1];
}
