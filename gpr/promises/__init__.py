"""Records how promises turn out, forecasts new ones from past ones, and publishes the figures."""
