/** Loaded before each test file: its process ends with its last test, whatever timers and connections of it are left. */
import { registerCompletionHandler } from "ava";

registerCompletionHandler(() => process.exit());
