/** A real sshd on loopback with its own keys and accounts: the host's are neither read nor changed. */
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { appendFile, chmod, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually, nextEvent } from "./eventually.ts";
import { isRoot } from "./daemon.ts";
import { freePort } from "./packages.ts";
import { main } from "./svc-main.ts";

const sshd = "/usr/sbin/sshd";
/** For titles of tests that need one. */
export const needsSsh = isRoot && existsSync(sshd) ? "" : " (skipped: needs root and openssh-server)";

/** The regular user who may log in, and who has no account on the host. */
export const sshUser = { name: "ada", uid: 54_321 } as const;

export interface SshServer extends AsyncDisposable {
  readonly port: number;
  /** The command that svc runs instead of `ssh`: the system's, with the test's keys. */
  readonly ssh: string;
  /** The line of a known_hosts file. */
  readonly knownHost: string;
  /** The server's log so far. */
  readonly log: () => string;
  /** Replaces the program with this name for logged-in users. */
  install(name: string, script: string): Promise<void>;
  /** Lets owners of another key log in. @param publicKey path of its file */
  accept(publicKey: string): Promise<void>;
}

/** The directory in which `svc` is the program under test. */
export async function startSshServer(): Promise<SshServer> {
  const dir = await mkdtemp(join(tmpdir(), "svc-ssh-"));
  // Logged-in users run the programs in it.
  await chmod(dir, 0o755);
  const file = (name: string): string => join(dir, name);
  const [bin, home] = [file("bin"), file("home")];
  await mkdir(bin);
  await mkdir(home, { mode: 0o777 });
  for (const key of ["host_key", "client_key"]) {
    execFileSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", file(key)]);
  }
  const install = (name: string, script: string): Promise<void> =>
    writeFile(join(bin, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  await install("svc", `exec '${process.execPath}' --disable-warning=ExperimentalWarning '${main}' "$@"`);
  const port = await freePort();
  await writeFile(
    file("passwd"),
    `root:*:0:0::${home}:/bin/sh\nsshd:*:65534:65534::/nonexistent:/bin/false\n` +
      `${sshUser.name}:*:${sshUser.uid}:${sshUser.uid}::${home}:/bin/sh\n`,
  );
  await writeFile(
    file("sshd_config"),
    [
      `ListenAddress 127.0.0.1:${port}`,
      `HostKey ${file("host_key")}`,
      `AuthorizedKeysFile ${file("client_key.pub")} ${file("accepted_keys")}`,
      "PasswordAuthentication no",
      "KbdInteractiveAuthentication no",
      "UsePAM no",
      "AcceptEnv GIT_PROTOCOL",
      // The temporary directory is world-writable.
      "StrictModes no",
      "PidFile none",
      "LogLevel VERBOSE",
      `SetEnv PATH=${bin}:/usr/bin:/bin`,
    ].join("\n"),
  );
  const publicKey = execFileSync("cat", [file("host_key.pub")], { encoding: "utf8" }).trim();
  const knownHost = `[127.0.0.1]:${port} ${publicKey}\n`;
  await writeFile(file("known_hosts"), knownHost);
  await writeFile(
    file("ssh_config"),
    [
      `IdentityFile ${file("client_key")}`,
      "IdentitiesOnly yes",
      "IdentityAgent none",
      `UserKnownHostsFile ${file("known_hosts")}`,
      "GlobalKnownHostsFile none",
      "StrictHostKeyChecking yes",
    ].join("\n"),
  );
  // Separate accounts and a separate /run, because sshd needs a directory there.
  const script = `mount --bind '${file("passwd")}' /etc/passwd && mount -t tmpfs tmpfs /run && mkdir -m 0755 /run/sshd &&
    exec ${sshd} -D -e -f '${file("sshd_config")}'`;
  const server = spawn("unshare", ["--mount", "sh", "-c", script], { stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  server.stderr.setEncoding("utf8").on("data", (text: string) => (log += text));
  await eventually(() => assert.match(log, /Server listening/, log));
  return {
    port,
    ssh: `ssh -F ${file("ssh_config")}`,
    log: () => log,
    knownHost,
    install,
    accept: async (path) => appendFile(file("accepted_keys"), await readFile(path)),
    async [Symbol.asyncDispose]() {
      if (server.exitCode === null && server.signalCode === null) {
        const exited = nextEvent(server, "exit");
        server.kill();
        await exited;
      }
      await rm(dir, { recursive: true, force: true });
    },
  };
}
