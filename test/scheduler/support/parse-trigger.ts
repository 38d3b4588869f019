import { TriggerParser, type Trigger } from "../../../src/triggers/trigger.ts";

/** Parses a single trigger with a new parser. */
export function parseTrigger(text: string): Trigger {
  return new TriggerParser().parse(text);
}
