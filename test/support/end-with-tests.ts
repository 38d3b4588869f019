/** Loaded before each test file: its process exits after its last test, even with open timers and connections. */
import { registerCompletionHandler } from "ava";

registerCompletionHandler(() => process.exit());
