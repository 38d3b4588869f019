/**
 * The thread in which what strangers wrote is worked on: settings are held against their schema, and YAML is read, be it a
 * manifest, the index of a source or another document.
 */
import { parentPort } from "node:worker_threads";
import { giveWay } from "../lib/priority.ts";
import { createManifestReader } from "./manifest-reader.ts";
import type { SettingsCheck, SettingsFinding } from "./settings-check.ts";
import { createIndexReader } from "./source-index.ts";
import { readYaml } from "./yaml-document.ts";
import type { YamlAnswer, YamlTask } from "./yaml-thread.ts";

// Whoever asks the daemon comes before what authors wrote.
giveWay(10);

let check: ((task: SettingsCheck) => SettingsFinding) | undefined;
const readManifest = createManifestReader();
const readIndex = createIndexReader();

/** What the thread does; nothing but the building of a bundle calls it elsewhere. */
export async function answer(task: SettingsCheck | YamlTask): Promise<SettingsFinding | YamlAnswer> {
  if ("schema" in task) {
    // What it hashes and matches with takes a quarter of the start of a thread that reads YAML.
    const { createSettingsCheck } = await import("./settings-check.ts");
    return (check ??= createSettingsCheck())(task);
  }
  switch (task.kind) {
    case "document": {
      const result = readYaml(task.text, task.bounds);
      return "problems" in result ? result : { json: JSON.stringify(result.document.value) };
    }
    case "manifest":
      return printed(await readManifest(task.text));
    case "index":
      return printed(await readIndex(task.text));
  }
}

function printed(result: object): YamlAnswer {
  return "problems" in result ? (result as YamlAnswer) : { json: JSON.stringify(result) };
}

parentPort?.on("message", (task: SettingsCheck | YamlTask) => {
  // What it throws ends the thread, and the one task that it works on fails.
  void answer(task).then((result) => parentPort?.postMessage(result));
});
