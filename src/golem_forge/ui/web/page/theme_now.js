/* Before anything is painted: the chosen theme, so that the page does not flash in the other one. */

import { applyTheme } from "./theme.js";

applyTheme();
