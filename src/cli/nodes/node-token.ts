/**
 * The token for a daemon behind https: from a file, or from a credential helper like Docker's. Never from
 * arguments.
 */
import { execFile } from "node:child_process";
import { open } from "node:fs/promises";
import { SvcError } from "../../errors.ts";
import type { Node } from "./node-file.ts";

const maxTokenBytes = 16 * 1024;
/** Milliseconds. Long, because a helper may ask a person. */
const helperTimeoutMs = 60_000;

/** @throws SvcError that names the source, but none of its content */
export async function readToken({
  address,
  token_file: file,
  credential_helper: helper,
}: Node): Promise<string> {
  if (file === undefined && helper === undefined) {
    throw new SvcError(
      "unauthenticated",
      `${address} needs a token: name a file with --token-file or a program with --credential-helper (SVC_TOKEN_FILE, SVC_CREDENTIAL_HELPER)`,
    );
  }
  const token = (file === undefined ? await askHelper(helper ?? "", address) : await readFile(file)).trim();
  // The token becomes a header value.
  if (!/^[\x21-\x7e]{1,16384}$/.test(token)) {
    throw new SvcError("not_possible", `the content of ${file ?? helper} for ${address} is not a token`);
  }
  return token;
}

async function readFile(path: string): Promise<string> {
  try {
    await using file = await open(path, "r");
    const { mode, size } = await file.stat();
    if ((mode & 0o077) !== 0) throw new Error("other users can read it: chmod 600");
    if (size > maxTokenBytes) throw new Error("the file is too large for a token");
    return await file.readFile("utf8");
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw new SvcError("not_possible", `the token file ${path} cannot be used: ${code ?? message}`, {
      cause: error,
    });
  }
}

/** Docker's protocol: `get` as the argument, the address on standard input, JSON with `Secret` on standard output. */
function askHelper(program: string, address: string): Promise<string> {
  const refused = (why: string): SvcError =>
    new SvcError("not_possible", `the credential helper ${program} has no token for ${address}: ${why}`);
  return new Promise((resolve, reject) => {
    const limits = { timeout: helperTimeoutMs, maxBuffer: 4 * maxTokenBytes };
    // The output may contain the secret, even after a failure.
    const child = execFile(program, ["get"], limits, (error, stdout) => {
      if (error !== null) {
        reject(refused(error.code === "ENOENT" ? "the program was not found" : "the program failed"));
        return;
      }
      try {
        const { Secret: secret } = JSON.parse(stdout) as { Secret?: unknown };
        if (typeof secret === "string") resolve(secret);
        else reject(refused("the response has no Secret"));
      } catch {
        reject(refused("the response is not JSON"));
      }
    });
    child.stdin?.on("error", () => undefined);
    child.stdin?.end(`${address}\n`);
  });
}
