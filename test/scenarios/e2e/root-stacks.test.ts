/** Stacks that only root may install. */
import { testStacks } from "../../support/stack-life.ts";
import { rootStacks } from "../../support/root-stacks.ts";

testStacks(rootStacks);
