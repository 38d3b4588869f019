/** Versions of the container engine's API that svc supports. */
import { request, type IncomingMessage } from "node:http";
import { SvcError } from "../errors.ts";

/** Debian 12's engine, 20.10. */
const minApiVersion = "1.41";
/** The newest version that svc was written for; newer engines support it too. */
const maxApiVersion = "1.51";

const maxAnswerBytes = 1024 * 1024;

/**
 * Returns the newest API version that both the engine and svc support.
 * @throws SvcError `failed_precondition` when there is no such version; errors of the connection
 */
export async function negotiateApiVersion(socketPath: string, timeoutMs: number): Promise<string> {
  const { ApiVersion, MinAPIVersion } = await queryVersion(socketPath, AbortSignal.timeout(timeoutMs));
  return chooseApiVersion(ApiVersion, MinAPIVersion);
}

/** @throws SvcError `failed_precondition` when the engine is too old or too new */
export function chooseApiVersion(newest: string, oldest: string): string {
  const version = isOlder(newest, maxApiVersion) ? newest : maxApiVersion;
  if (isOlder(version, minApiVersion) || isOlder(version, oldest)) {
    throw new SvcError(
      "not_possible",
      `the container engine supports API ${oldest} to ${newest}, but svc needs ${minApiVersion} to ${maxApiVersion}`,
    );
  }
  return version;
}

export function isOlder(version: string, than: string): boolean {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const [thanMajor = 0, thanMinor = 0] = than.split(".").map(Number);
  return major === thanMajor ? minor < thanMinor : major < thanMajor;
}

async function queryVersion(
  socketPath: string,
  signal: AbortSignal,
): Promise<{ ApiVersion: string; MinAPIVersion: string }> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const headers = { host: "docker" };
  request({ socketPath, path: "/version", headers, agent: false, signal }, resolve)
    .once("error", reject)
    .end();
  const response = await promise;
  let text = "";
  for await (const chunk of response.setEncoding("utf8")) {
    text += chunk as string;
    if (text.length > maxAnswerBytes) response.destroy(new Error("this is not a container engine"));
  }
  const answer = JSON.parse(text) as { ApiVersion?: unknown; MinAPIVersion?: unknown };
  const { ApiVersion, MinAPIVersion = minApiVersion } = answer;
  if (!isVersion(ApiVersion) || !isVersion(MinAPIVersion)) {
    throw new SvcError(
      "unavailable",
      `the server at ${socketPath} does not report its API version; is it a container engine?`,
    );
  }
  return { ApiVersion, MinAPIVersion };
}

function isVersion(value: unknown): value is string {
  return typeof value === "string" && /^\d{1,4}\.\d{1,4}$/.test(value);
}
