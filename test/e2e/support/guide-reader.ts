/** A reader of the guide, who types its commands. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { TestDaemon } from "../../support/daemon.ts";
import { readPage } from "../../support/docs.ts";
import { main } from "../../support/svc-main.ts";

/** Commands that ask, and the options that agree. */
const agreements: readonly (readonly [RegExp, string])[] = [
  [/^svc (?:backup )?restore\b/, " --yes --accept-permissions"],
  [/^svc (?:file )?rm\b/, " --yes"],
];
/** Commands that continue until Ctrl-C. */
const endless = /^svc (?:package run|.*(?: -f\b| --watch))/;

/**
 * The commands of all `console` and `sh` blocks. A here-document belongs to its command. Blocks that no test can run are
 * marked with the reason: ```sh not run: needs a second machine
 */
export async function commandsOf(page: string): Promise<string[]> {
  const blocks = [...(await readPage(page)).matchAll(/^```(console|sh)\n(.*?)^```/gms)];
  const commands = blocks.flatMap(([, kind, text = ""]) => {
    const body = kind === "console" ? text : text.replaceAll(/^/gm, "$ ").replace(/\$ $/, "");
    return body.split(/^\$ /m).slice(1);
  });
  return commands.map((text) => (text.includes("<<") ? text : text.trim().replace(/ +# .*$/, "")));
}

/** The reasons of the marked blocks of a page. */
export async function marksOf(page: string): Promise<string[]> {
  const marks = (await readPage(page)).matchAll(/^```\w+ not run: (.+)$/gm);
  return [...marks].map(([, reason = ""]) => reason);
}

export interface Reader {
  readonly daemon: TestDaemon;
  /** Types a command in the current directory, which `cd` changes. @returns both outputs */
  readonly type: (command: string) => Promise<string>;
}

/** @param programs further programs of the reader's machine, as shell scripts by name */
export async function readerOn(
  daemon: TestDaemon,
  programs: Readonly<Record<string, string>> = {},
): Promise<Reader> {
  const bin = join(daemon.dir, "bin");
  await mkdir(bin);
  const svc = `exec "${process.execPath}" "${main}" --socket "${daemon.socketPath}" "$@"`;
  for (const [name, script] of Object.entries({ svc, sudo: 'exec "$@"', ...programs }))
    await writeFile(join(bin, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  await writeFile(join(daemon.dir, ".gitconfig"), "[user]\n  name = Ada\n  email = ada@example.org\n");
  let directory = daemon.dir;
  const type = (command: string): Promise<string> => {
    const agreed = command + (agreements.find(([asks]) => asks.test(command))?.[1] ?? "");
    // The signal of Ctrl-C, after time enough to start on a busy host; 124: the command was still running.
    const line = endless.test(command) ? `timeout --signal=INT 20 ${agreed}; test $? -eq 124` : agreed;
    const env = { PATH: `${bin}:${process.env["PATH"] ?? ""}`, HOME: daemon.dir };
    return new Promise<string>((resolve, reject) => {
      const shell = execFile(
        "sh",
        ["-c", `{\n${line}\n} 2>&1; code=$?; pwd > "${daemon.dir}/pwd"; exit $code`],
        { cwd: directory, env },
        (error, output) => {
          if (error !== null) reject(new Error(`${command}: ${output}`));
          else resolve(output);
        },
      );
      shell.stdin?.end();
    }).then(async (output) => {
      directory = (await readFile(join(daemon.dir, "pwd"), "utf8")).trim();
      return output;
    });
  };
  return { daemon, type };
}

/**
 * Types the commands of a page.
 * @param adapt replaces what differs from the page, such as the address of a server
 * @returns the output of each command, by its text in the page
 */
export async function follow(
  { type }: Reader,
  page: string,
  adapt = (command: string): string => command,
): Promise<Map<string, string>> {
  const outputs = new Map<string, string>();
  for (const command of await commandsOf(page)) outputs.set(command, await type(adapt(command)));
  assert.ok(outputs.size > 0, `${page} has commands`);
  return outputs;
}
