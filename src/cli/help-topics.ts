/** `svc help TOPIC`: the pages of `docs/`, as they come with svc. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { exitCodes } from "./exit-codes.ts";
import type { CliHost } from "./host.ts";
import { page } from "./pager.ts";

/** None of them is the name of a command, whose help comes first. */
const pages: Readonly<Record<string, readonly [file: string, about: string]>> = {
  trying: ["try.md", "files, terminals and the page in a browser, tried out"],
  installing: ["install.md", "ways to install it, where things lie, several machines"],
  packages: ["packages.md", "what can be installed, and writing one's own"],
  containers: ["containers.md", "apps in containers, and those of the host"],
  schedules: ["schedules-and-backups.md", "jobs, and backups of apps"],
  monitoring: ["host.md", "the host's figures and alerts"],
  rest: ["api.md", "the API from programs of one's own"],
  platforms: ["platform.md", "what looks after many nodes, and how it should"],
  commands: ["reference/commands.md", "every command and option"],
  configuration: ["reference/configuration.md", "every key of svc.toml"],
  manifest: ["reference/manifest.md", "every key of svc.yaml"],
  methods: ["reference/api.md", "every method, and every reason of an error"],
  archives: ["backup-format.md", "the format of backups"],
  threats: ["threat-model.md", "what others send, and its bounds"],
};

/** What `svc help` takes beside the names of commands. */
export function topicsOf(): readonly { readonly word: string; readonly description: string }[] {
  const all = Object.entries(pages).map(([word, [, about]]) => ({ word, description: about }));
  return [...all, { word: "topics", description: "the list of these pages" }];
}

/** @returns the exit code; undefined: there is no such topic */
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
