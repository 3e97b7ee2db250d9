"""A run as a library call: config → owners → method → evaluation → result and its folder."""
