/**
 * The thread for untrusted content: validates settings against their schema, parses YAML, such as manifests and indexes of
 * sources, and applies ignore files.
 */
import { parentPort } from "node:worker_threads";
import { lowerPriority } from "../../sys/priority.ts";
import { chooseEntries, type EntryChoice } from "../build-context/chosen-entries.ts";
import { createManifestReader } from "../manifest/manifest-reader.ts";
import type { SettingsCheck, SettingsFinding } from "./settings-check.ts";
import { createIndexReader } from "../sources/source-index.ts";
import { readYaml } from "../manifest/yaml-document.ts";
import type { YamlAnswer, YamlTask } from "../manifest/yaml-thread.ts";

// Requests to the daemon have priority over package authors' content.
lowerPriority(10);

let check: ((task: SettingsCheck) => SettingsFinding) | undefined;
const readManifest = createManifestReader();
const readIndex = createIndexReader();

/** Handles one task; the build of a bundle also calls it. */
export async function answer(task: SettingsCheck | YamlTask): Promise<SettingsFinding | YamlAnswer> {
  if ("schema" in task) {
    // Loading its hash and regular expression modules takes a quarter of the start of a thread that parses YAML.
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
    case "entries":
      return chosen(task);
  }
}

function chosen(choice: EntryChoice): YamlAnswer {
  try {
    return { numbers: chooseEntries(choice) };
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return { problems: [{ line: 1, message: error.message }] };
  }
}

function printed(result: object): YamlAnswer {
  return "problems" in result ? (result as YamlAnswer) : { json: JSON.stringify(result) };
}

parentPort?.on("message", (task: SettingsCheck | YamlTask) => {
  // An exception ends the thread, and fails only the current task.
  void answer(task).then((result) => parentPort?.postMessage(result));
});
