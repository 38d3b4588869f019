/** `svc help TOPIC`: shows pages of `docs/`, which ship with svc. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { exitCodes } from "./output/exit-codes.ts";
import type { CliHost } from "./host.ts";
import { page } from "./output/pager.ts";

/** No topic has the name of a command, since the command's help would take precedence. */
const pages: Readonly<Record<string, readonly [file: string, about: string]>> = {
  trying: ["try.md", "a tour: files, terminals and the web page"],
  installing: ["install.md", "installing svc, its files, several machines"],
  packages: ["packages.md", "packages, and how to write them"],
  containers: ["containers.md", "apps in containers, and the host's containers"],
  schedules: ["schedules-and-backups.md", "jobs, and backups of apps"],
  monitoring: ["host.md", "the host's metrics and alerts"],
  rest: ["api.md", "using the API from programs"],
  platforms: ["platform.md", "platforms that manage many nodes"],
  commands: ["reference/commands.md", "every command and option"],
  configuration: ["reference/configuration.md", "every key of svc.toml"],
  manifest: ["reference/manifest.md", "every key of svc.yaml"],
  methods: ["reference/api.md", "every method and error reason"],
  archives: ["backup-format.md", "the format of backups"],
  threats: ["threat-model.md", "untrusted input and its limits"],
};

/** Topics that `svc help` accepts in addition to command names. */
export function topicsOf(): readonly { readonly word: string; readonly description: string }[] {
  const all = Object.entries(pages).map(([word, [, about]]) => ({ word, description: about }));
  return [...all, { word: "topics", description: "the list of these pages" }];
}

/** @returns the exit code; undefined if there is no such topic */
export async function showTopic(host: CliHost, topic: string): Promise<number | undefined> {
  if (topic === "topics") {
    const lines = Object.entries(pages).map(([name, [, about]]) => `${name.padEnd(15)}${about}\n`);
    await page(host, lines.join(""));
    return exitCodes.ok;
  }
  const [file] = Object.hasOwn(pages, topic) ? (pages[topic] ?? []) : [];
  if (file === undefined) return undefined;
  await page(host, await readFile(join(host.program.docsDir, file), "utf8"));
  return exitCodes.ok;
}
